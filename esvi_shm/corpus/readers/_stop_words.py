"""English words that say nothing of a topic, of three letters or more.

Own, because scikit-learn's list costs its import, of more than a second.
"""

STOP_WORDS = frozenset(
    """
    about above after again against all allow allows almost alone along already also although
    always among and another any anyone anything are aren around because been before being below
    between both but can cannot could couldn did didn does doesn doing don done down due during
    each either else enough etc even ever every everything example except far few first following
    for from further get gets give given gives had hadn has hasn have haven having hence her here
    hers herself him himself his how however ignored indeed instead into isn its itself just keep
    last later least less let like likely made make makes making many may maybe meaning means might
    more moreover most much must mustn necessary need needed needs neither never nevertheless next
    non none nor not note nothing now off often once one ones only onto optional other others
    otherwise our ours ourselves out over own particular per perhaps possible rather really same
    see seem seems several shall shan she should shouldn similar simply since some something
    sometimes somewhere still such sure take taken than that the their theirs them themselves then
    there thereby therefore these they thing things this those though three through thus together
    too toward two under unless until upon use used useful uses using usually various very via want
    was wasn way well were weren what whatever when whenever where whereas wherever whether which
    while who whole whom whose why will with within without won would wouldn yes yet you your yours
    yourself
    """.split()
)
